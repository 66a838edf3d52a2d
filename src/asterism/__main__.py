"""`python -m asterism`, and with several processes `torchrun … -m asterism`."""

from asterism.cli import main

main()
