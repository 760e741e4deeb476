"""python -m alti"""

from alti.cli import main

main()
