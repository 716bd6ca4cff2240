"""Configuration: ``sections`` says what there is, ``load`` reads a file and the environment, ``template`` writes the
commented file, ``changes`` says what SIGHUP can apply, ``keys`` reads the key files that it names."""
