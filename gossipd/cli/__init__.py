"""The commands. ``main`` knows them all by name and imports one only when it is called: ``status`` starts quickly."""
