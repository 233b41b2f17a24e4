"""Small Markdown helpers of the post-mortem: tables, numbers, and text that cannot break out."""

from collections.abc import Sequence


def number(value: float | None, digits: int = 3) -> str:
    """A number for prose and tables; what was not finite is said so."""
    return "not finite" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"


def code(text: str) -> str:
    """Any text as an inline code span: control characters escaped, backticks contained."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    longest, run = 0, 0
    for character in shown:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    fence = "`" * (longest + 1)
    return f"{fence} {shown or ' '} {fence}" if longest or shown != shown.strip() else f"`{shown}`"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A pipe table; columns in `right` are right-aligned. Pipes inside cells are escaped."""
    rule = ["---:" if column in right else "---" for column in range(len(header))]
    lines = [list(header), rule, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
