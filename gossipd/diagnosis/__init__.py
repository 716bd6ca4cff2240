"""What is wrong, and who can cure it: pure functions over what a daemon or a host has told.

* ``causes``  why a deployment is not complete, from the status page
* ``checks``  what ``gossipd doctor`` looks at, each with its sentence and its cure
* ``redaction``  taking secrets out of what leaves the host
"""
