"""Configuration: ``sections`` defines every setting, of the ``kinds`` of values; ``load`` reads a file and the
environment, ``template`` writes the commented file, ``directory`` makes a new node's directory, ``changes`` finds what
SIGHUP can apply, ``keys`` reads the key files, ``places`` checks the file systems.
"""
