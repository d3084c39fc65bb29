"""The cellar: arrays of any library, dense factorisations, quadrature, conjugate gradients."""
