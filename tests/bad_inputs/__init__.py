"""The table of bad inputs, B1 to B50: each row with its stable codes and the tests that prove them.

``python -m tests.bad_inputs [--json]`` prints it; ``test_rows`` holds that every test and every code exists.
"""
