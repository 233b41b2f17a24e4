"""Hoffmann's parametric law of the loss and what follows from it on a FLOPs budget C = 6ND.

Everything is a closed form, so it works on numbers and, element by element, on arrays: an
ensemble of laws (posterior draws) is one `Law` whose five fields are arrays of one shape.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

Number: TypeAlias = float | np.ndarray

FLOPS_PER_PARAMETER_TOKEN = 6  # forward 2, backward 4 (Kaplan et al. 2020, section 2.1)


@dataclass(frozen=True)
class Law:
    """L(N, D) = E + A / N^alpha + B / D^beta, in nats per token (Hoffmann et al. 2022, eq. 2).

    N is a number of parameters and D of tokens, both raw: never in millions or billions.
    """

    E: Number
    A: Number
    alpha: Number
    B: Number
    beta: Number

    @property
    def a(self) -> Number:
        """Exponent of the compute-optimal size: N_opt ~ C^a (Hoffmann et al. 2022, eq. 4)."""
        return self.beta / (self.alpha + self.beta)

    @property
    def b(self) -> Number:
        """Exponent of the compute-optimal tokens: D_opt ~ C^b, with a + b = 1."""
        return self.alpha / (self.alpha + self.beta)

    def loss(self, N: Number, D: Number) -> Number:
        """Nats per token of a model of N parameters after D tokens."""
        terms = self.A * np.exp(-self.alpha * np.log(N)) + self.B * np.exp(-self.beta * np.log(D))
        return self.E + terms

    def d_opt(self, N: Number) -> Number:
        """Tokens at which N is the best size for the compute spent: (beta B N^alpha / (alpha A))^(1/beta).

        From dL = 0 on 6ND = C, where alpha A / N^alpha = beta B / D^beta. No factor beyond this:
        raw parameters in, raw tokens out.
        """
        log_ratio = np.log(self.beta * self.B) - np.log(self.alpha * self.A)
        return np.exp((log_ratio + self.alpha * np.log(N)) / self.beta)

    def n_opt(self, C: Number) -> Number:
        """The best size for C FLOPs: (alpha A / (beta B))^(1/(alpha+beta)) (C/6)^a."""
        log_ratio = np.log(self.alpha * self.A) - np.log(self.beta * self.B)
        log_tokens = np.log(C / FLOPS_PER_PARAMETER_TOKEN)
        return np.exp((log_ratio + self.beta * log_tokens) / (self.alpha + self.beta))

    def d_opt_at(self, C: Number) -> Number:
        """The best number of tokens for C FLOPs: C / (6 n_opt(C))."""
        return C / (FLOPS_PER_PARAMETER_TOKEN * self.n_opt(C))
