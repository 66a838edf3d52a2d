"""`python -m asterism.cli`."""

from asterism.cli import main

main()
