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
# Size of an RE2 program: a search takes at most the length of the text times this.
MAX_PATTERN_SIZE: Final = 2000
# Nested walks through the whole page, such as //a[.//b[.//c]]: each multiplies the cost by the
# size of the page.
MAX_NESTED_WALKS: Final = 3
# Factor by which one JMESPath expression may multiply a document; a tenth of it where the
# expression also builds strings.
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
# Signed 64-bit: the range of every destination.
MAX_INTEGER: Final = 2**63 - 1
