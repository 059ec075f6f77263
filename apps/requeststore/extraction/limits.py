"""Size limits of rules, pages and extracted data.

XPath cannot be interrupted: the sizes bound the cost of a careful rule, ``boxed`` that of any
rule.
"""

from __future__ import annotations

from typing import Final

MAX_RULES: Final = 500
MAX_FIELDS: Final = 200
MAX_DEPTH: Final = 5  # fields in fields
MAX_STEPS: Final = 20
MAX_FOLLOWS: Final = 20
MAX_NAMESPACES: Final = 20

MAX_EXPRESSION: Final = 1000
MAX_TEXT: Final = 1000  # of replacements, separators, prefixes
MAX_CONST_BYTES: Final = 4096
# Of re2's program: the time of a search is at worst the text's length times this.
MAX_PATTERN_SIZE: Final = 2000
# Walks through the whole page inside one another, such as //a[.//b[.//c]]: each multiplies the cost
# by the size of the page.
MAX_NESTED_WALKS: Final = 3
# What the lists and objects of one JMESPath expression may multiply a document by; a tenth of it
# where the expression also writes texts out of them.
MAX_GROWTH: Final = 1000

MAX_PAGE_BYTES: Final = 8 * 1024 * 1024
MAX_FIELD_BYTES: Final = 256 * 1024
MAX_RECORDS: Final = 10_000
MAX_RESULT_BYTES: Final = 8 * 1024 * 1024
MAX_VALUES: Final = 10_000  # of one expression at one place
MAX_PROBLEMS: Final = 100
MAX_FOLLOW: Final = 10_000
MAX_FOLLOW_DEPTH: Final = 1000
MAX_URL: Final = 8000
# 64 bits, signed: what every table and queue behind this can keep.
MAX_INTEGER: Final = 2**63 - 1
