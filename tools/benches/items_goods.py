"""Items of a shop for the bench of items: ten fields, about 500 bytes of JSON.

Addresses, breadcrumbs, pictures and descriptions as shops make them: of the same words again and
again, with numbers that do not repeat.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

# In the description of every thousandth item.
RARE: Final = "hand-stitched"
# In that of about every second one.
FREQUENT: Final = "warranty"


def _words(text: str) -> list[str]:
    return text.split()


_BRANDS: Final = [
    f"{one}{two}"
    for one in ("Nor", "Hel", "Bau", "Kai", "Ser", "Lum", "Vol", "Tar", "Mer", "Ost")
    for two in ("dal", "vex", "mark", "ling", "ova", "ton", "ixa", "berg", "ano", "wick")
]
_NOUNS: Final = _words(
    "backpack jacket lamp kettle chair table knife tent stove mug blanket bottle "
    "torch glove rope boot shirt filter pump rack shelf mirror clock basket drawer "
    "pillow towel brush pan pot"
)
_WORDS: Final = _words(
    "light sturdy compact waterproof folding recycled classic modern quiet warm slim "
    "wide portable adjustable insulated padded seamless breathable stackable scratch- "
    "proof"
)
_MATERIALS: Final = _words(
    "steel cotton bamboo oak leather aluminium nylon ceramic wool titanium canvas "
    "cork silicone linen brass walnut polyester glass"
)
_COLORS: Final = _words("black white grey navy olive red sand teal copper ivory plum amber")
_CATEGORIES: Final = _words("outdoor kitchen living office travel garden bath storage lighting")
_SENTENCES: Final = (
    "Made of {material} and {other}, it weighs {number} g and fits into any {noun}.",
    "The {word} {noun} comes in {color} with a {years} year warranty.",
    "Its {material} frame carries up to {number} kg without bending.",
    "Wash at {years}0 degrees; the {color} dye keeps for {number} cycles.",
    "Customers pair it with our {word} {noun} in {color}.",
    "A {word} surface of {material} that stays {other} for years.",
    "Ships within {years} working days from our warehouse, warranty included.",
    "Tested {number} times in our own laboratory for {word} use.",
    "Dimensions: {number} x {more} x {years}0 mm, {material} finish.",
    "Spare parts such as the {noun} of {material} are in stock for {years}0 years.",
)


def goods(seed: int, first: int, count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (address of the page, item) of the numbers from ``first`` on; equal for equal seeds."""
    dice = random.Random(seed)  # noqa: S311 - no secret
    choice = dice.choice
    for number in range(first, first + count):
        brand, noun, category = choice(_BRANDS), choice(_NOUNS), choice(_CATEGORIES)
        word, color, material = choice(_WORDS), choice(_COLORS), choice(_MATERIALS)
        slug = f"{brand.lower()}-{noun}-{number}"
        item = {
            "url": f"https://shop.example/{category}/{slug}.html",
            "sku": f"{brand[:3].upper()}-{dice.randrange(10**4):04d}-{number}",
            "brand": brand,
            "title": f"{brand} {word} {noun}, {material}, {color}",
            "price": dice.randrange(199, 49_999) / 100,
            "in_stock": dice.random() < 0.8,
            "breadcrumbs": ["Home", category.capitalize(), noun.capitalize(), word.capitalize()],
            "images": [f"https://img.shop.example/{slug}/{size}.jpg" for size in ("m", "l")],
            "description": _description(dice, number),
        }
        if number % 10:
            item["reviews"] = int(dice.expovariate(0.02))
        yield f"https://shop.example/{category}?page={number // 40}", item


def _description(dice: random.Random, number: int) -> str:
    choice: Any = dice.choice
    picked: Sequence[str] = dice.sample(_SENTENCES, 2)
    text = " ".join(picked).format(
        material=choice(_MATERIALS),
        other=choice(_MATERIALS),
        noun=choice(_NOUNS),
        word=choice(_WORDS),
        color=choice(_COLORS),
        number=dice.randrange(10, 2000),
        more=dice.randrange(10, 2000),
        years=dice.randrange(1, 9),
    )
    return f"{text} {RARE.capitalize()} seams." if number % 1000 == 0 else text
