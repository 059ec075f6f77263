"""What routes items: plain Python, without Django, tested and measured without a database."""
