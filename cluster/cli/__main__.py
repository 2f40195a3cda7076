"""`python -m cluster.cli` is `outrider`."""

from cluster.cli.main import main

main()
