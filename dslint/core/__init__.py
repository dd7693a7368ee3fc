"""Values that every room shares: positions, findings, fixes, facts. Standard library only, all picklable."""
