"""Published fits of the law: what a prediction is compared with, and starting values.

Coefficients are for nats per token of the authors' own corpus and tokenizer, so across studies
D_opt and the exponents may be compared, and losses may not.
"""

from dataclasses import dataclass

from x1_pretrain.scaling.law import Law


@dataclass(frozen=True)
class Published:
    """One published law. `source` says where the digits stand."""

    name: str
    law: Law
    source: str


HOFFMANN_ROUNDED = Published(
    "Hoffmann 2022, as printed",
    Law(E=1.69, A=406.4, alpha=0.34, B=410.7, beta=0.28),
    "arXiv 2203.15556, equation 10",
)
HOFFMANN = Published(
    "Hoffmann 2022, unrounded",
    Law(E=1.6934, A=406.4, alpha=0.33917084, B=410.7, beta=0.2849083),
    "arXiv 2203.15556, digits from its LaTeX source (Besiroglu et al. 2024, section 2)",
)
BESIROGLU = Published(
    "Besiroglu 2024, as printed",
    Law(E=1.8172, A=482.01, alpha=0.3478, B=2085.43, beta=0.3658),
    "arXiv 2404.10102, table 1: Chinchilla's runs refitted",
)
MUENNIGHOFF = Published(
    "Muennighoff 2023, C4",
    Law(E=1.869, A=520.8, alpha=0.3527, B=1488.0, beta=0.3527),
    "arXiv 2305.16264, with alpha = beta imposed",
)

PUBLISHED = (HOFFMANN_ROUNDED, HOFFMANN, BESIROGLU, MUENNIGHOFF)

# Hoffmann 2022, table A3, a model of 1e9 parameters: tokens by approaches 1, 2 and 3.
CHINCHILLA_D_OPT_1B = (20.2e9, 20.0e9, 27.1e9)
CHINCHILLA_SOURCE = "arXiv 2203.15556, tables 3 and A3"
