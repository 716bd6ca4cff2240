"""What is said in each attack: a function for each kind, whose arguments make the attacks of that kind.

Each takes a ``Stage`` first and gives what its surface takes. None knows what the right answer is.
"""
