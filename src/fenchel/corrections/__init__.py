"""Beyond the Gaussian q: the evidence and the marginals with each likelihood as it is."""
