"""The paper: re-weighted learning inside the optimizer.

The algorithms, each a class around any optimizer of torch's:

affine_scaling    AffineScaling, Algorithm 1: theta = q ⊙ omega (`eq:AST`)
proximal          ProximalReweighting, the re-weighted objective itself (`eq:re-weighted`)
splicing          Splicing, a latent q behind every weight (`eq:T`, DNS)
masked            Masked, a plain optimizer whose zeros stay; DropAndGrow, which moves them (RigL)

What they are made of:

sparse_optimizer  SparseOptimizer, their base: the step, the cut, masks, saving
reweighting       whose turn it is at t, and how strong the penalty is
penalties         g, psi and omega: re-weighted ℓ1, re-weighted ℓ2, FOCUSS, any concave g
group_penalty     the same for weights that live and die together
initialisers      where q starts after a re-weighting: noise, greedy, exact
schedules         which layers re-weight at t, how tau anneals
layer             one weight tensor: its omega, its mask, its proximal step
routine           when to re-weight and when to cut, for any training loop
stepping/         the machinery of one optimizer step
"""
