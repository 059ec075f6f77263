import pytest

from yardkit.errors import first_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("no route to host", "no route to host"),
        ("\nserver closed the connection\n\tThis probably means\n", "server closed the connection"),
        # Such as psycopg's, when a connection breaks off.
        ("", "ConnectionError"),
        (" \n", "ConnectionError"),
    ],
)
def test_an_error_says_something_in_one_line(text: str, line: str) -> None:
    assert first_line(ConnectionError(text)) == line
