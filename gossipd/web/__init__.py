"""The page: a web server of its own process, which shows what one daemon knows, and changes nothing."""
