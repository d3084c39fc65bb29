"""GPyTorch's fits, in double precision."""

import numpy as np

PACKAGE = "gpytorch"
POINTS, PASSES, BATCH, RATE = 500, 50, 1000, 0.03


def columns_of(table):
    return np.column_stack([table[name] for name in sorted(table) if name.startswith("x")])


def model_of(points, kernel, learn_points):
    import gpytorch

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self):
            v = gpytorch.variational
            kind = v.CholeskyVariationalDistribution if learn_points else v.NaturalVariationalDistribution
            q = kind(len(points))
            super().__init__(v.VariationalStrategy(self, points, q, learn_inducing_locations=learn_points))
            self.mean_module = gpytorch.means.ConstantMean() if learn_points else gpytorch.means.ZeroMean()
            self.covar_module = kernel

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    return Model()


def binary_process(data):
    """ApproximateGP with a point a row, logit by 20-point quadrature, natural gradients (rate 0.5, 30 steps)"""
    import gpytorch
    import torch

    class Logit(gpytorch.likelihoods._OneDimensionalLikelihood):
        def forward(self, f, *args, **kwargs):
            return torch.distributions.Bernoulli(logits=f)

    torch.set_default_dtype(torch.float64)
    X, y = torch.as_tensor(columns_of(data["train"])), torch.as_tensor(data["train"]["y"])
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    kernel.outputscale, kernel.base_kernel.lengthscale = (float(data["kernel"][k][0]) for k in ("variance", "length"))

    model, likelihood = model_of(X, kernel, False), Logit()
    model.train()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    search = gpytorch.optim.NGD(model.variational_parameters(), num_data=len(y), lr=0.5)
    for _ in range(30):
        search.zero_grad()
        (-objective(model(X), y)).backward()
        search.step()
    model.eval()
    with torch.no_grad():
        found = model(X)
    return {"mean": found.mean.numpy(), "sd": found.variance.sqrt().numpy()}


def large_process(data):
    """SVGP: 500 learned points, Matern 5/2 with a length a column, Adam (rate 0.03), 50 passes in batches of 1,000"""
    import gpytorch
    import torch

    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    X, y = torch.as_tensor(columns_of(data["train"])), torch.as_tensor(data["train"]["y"])
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=X.shape[1]))
    kernel.base_kernel.lengthscale = 2.0
    model, likelihood = model_of(X[:POINTS].clone(), kernel, True), gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = 0.1
    model.train(), likelihood.train()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    search = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=RATE)
    steps = torch.optim.lr_scheduler.MultiStepLR(search, [int(PASSES * 0.7), int(PASSES * 0.9)], gamma=0.2)
    for _ in range(PASSES):
        for rows in torch.randperm(len(y)).split(BATCH):
            search.zero_grad()
            (-objective(model(X[rows]), y[rows])).backward()
            search.step()
        steps.step()
    model.eval(), likelihood.eval()
    with torch.no_grad():
        found = likelihood(model(torch.as_tensor(columns_of(data["test"]))))
    return {"mean": found.mean.numpy(), "sd": found.variance.sqrt().numpy()}
