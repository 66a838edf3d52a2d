"""The paper's experiments on MNIST: Table 1 and Figure 1.

reproduce     every row and every seed
budgets/      the settings of each row, as data
methods/      AST, LWC, DNS, gradual magnitude pruning, dense
training      the training loop
small_files   codebooks learnt for a network that was trained, and the error of its file
jobs          one method, one seed, one folder
parallel      several jobs at once, each in a process
cluster       the same on many machines: Dask, Slurm
duration      how long it will take here
data/         MNIST, CIFAR-10, digits, and changes of images
networks/     LeNets and ResNets
results       the records that runs leave, and the rows they make
table         Table 1, ours beside the paper's
figure        Figure 1
paper         the numbers that the paper prints
"""
