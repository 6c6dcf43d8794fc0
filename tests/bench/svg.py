"""Writes SVG pictures by hand, readable in light and in dark mode, on a phone, and by screen readers.

A README loads a picture as an image, which knows only the reader's colour scheme and the fonts of the reader's machine.
So a colour is a class that sets `color`, which a media query exchanges and shapes use as currentColor; the background is
transparent; and widths of text are estimates, with room to spare.
"""

import html

WIDTH = 720
TEXT, SMALL = 20, 16  # Heights of letters: a phone shows the picture at half its width.
LETTER, PROSE = 0.64, 0.53  # Mean width of a letter by its height, in sans-serif fonts: of digits and bold words, of text.
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', Arial, sans-serif"
MONOSPACE = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"

# name: (light, dark). Colour-blind people can distinguish those of the peers: Okabe and Ito's blue, vermilion and bluish
# green, as dark or light as text has to be.
COLOURS = {
    "ink": ("#1f2328", "#e6edf3"),
    "quiet": ("#59636e", "#9198a1"),
    "grid": ("#d8dee4", "#30363d"),
    "blue": ("#0067a5", "#5ab4f0"),
    "vermilion": ("#b84a00", "#f0964a"),
    "green": ("#00755a", "#3ecf9e"),
    "red": ("#c4242f", "#ff7b72"),
    "yellow": ("#865d00", "#e3b341"),
    "magenta": ("#8250df", "#d2a8ff"),
    "cyan": ("#0b6e7c", "#56d4dd"),
    "screen": ("#f3f5f8", "#161b22"),
}


def width_of(text, size):
    return LETTER * size * len(text)


def number(value):
    """Returns three significant digits, or all digits before the point."""
    if value >= 99.95:
        return f"{value:,.0f}"
    text = f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".")


def styles():
    schemes = ("".join(f".{name}{{color:{pair[dark]}}}" for name, pair in COLOURS.items()) for dark in (0, 1))
    return f"{next(schemes)}@media (prefers-color-scheme: dark){{{next(schemes)}}}"


class Picture:
    """Elements in the order in which they are painted; y grows downwards."""

    def __init__(self, title, description):
        self.title, self.description, self.elements = title, description, []

    def add(self, name, colour, content="", **attributes):
        words = (f' {named(key)}="{html.escape(written(value))}"'
                 for key, value in {"class_": colour, **attributes}.items())
        self.elements.append(f"<{name}{''.join(words)}>{content}</{name}>")

    def text(self, x, y, words, colour="ink", size=TEXT, anchor="start", **more):
        self.add("text", colour, html.escape(words), x=x, y=y, font_size=size, text_anchor=anchor, fill="currentColor",
                 **more)

    def line(self, points, colour="grid", width=1.0, **more):
        joined = " ".join(f"{written(x)},{written(y)}" for x, y in points)
        self.add("polyline", colour, points=joined, fill="none", stroke="currentColor", stroke_width=width, **more)

    def marker(self, x, y, colour, shape, hint="", hollow=False):
        """Adds a mark around (x, y); a mouse over it shows the hint."""
        title = f"<title>{html.escape(hint)}</title>" if hint else ""
        paint = 'fill="none" stroke="currentColor" stroke-width="2.5"' if hollow else 'fill="currentColor"'
        self.add("g", colour, f'{title}<path d="{SHAPES[shape]}" {paint}/>', transform=f"translate({x:.1f} {y:.1f})")

    def written(self, height, font=FONT):
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
                f'height="{height:.0f}" role="img" aria-labelledby="title desc" font-family="{font}">')
        about = (f'<title id="title">{html.escape(self.title)}</title>'
                 f'<desc id="desc">{html.escape(self.description)}</desc>')
        return "\n".join([head, about, f"<style>{styles()}</style>", *self.elements, "</svg>", ""])


def named(key):
    return key.rstrip("_").replace("__", ":").replace("_", "-")


def written(value):
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


SHAPES = {
    "circle": "M-7 0a7 7 0 1 0 14 0a7 7 0 1 0 -14 0z",
    "square": "M-6 -6h12v12h-12z",
    "triangle": "M0 -8L8 6H-8z",
}
