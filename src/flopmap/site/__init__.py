"""The book as a site: pages with formulas that run in them, and the workbench that a server adds."""
