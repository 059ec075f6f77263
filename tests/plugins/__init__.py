"""Parts of pytest that this project adds, loaded by tests/conftest.py."""
