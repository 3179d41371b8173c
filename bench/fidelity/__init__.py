"""`./dev bench fidelity`: does a model train as well with a codec as without, and for how many bytes? Four nodes in one process,
through the real encoders, job machines, loopback transport and decoders. Standard library, python3-torch (Debian's, or a later
one with CUDA) and python3-numpy; python3-matplotlib for the pictures. docs/fidelity.md says what came out.

main       options, and the order of things                      (the command's process)
plan       every run there is, most important first              (pure)
pool       worker processes that do runs                         (the command's process)
worker     one run after the other, as it is told                (a worker's process)
training   one run: gradients, a step of the job, the optimizer  (a worker's process)
tasks      the three tasks by name                               (a worker's process)
images     pictures of clothes, a convolutional network          (a worker's process)
text       letters of a manual, a transformer                    (a worker's process)
words      words of the same manual, two embedding tables        (a worker's process)
grouped    layers whose weights each group of samples has        (pure)
library    the C library of this folder                          (a worker's process)
results    runs that are done, as lines of JSON                  (the command's process)
report     tables, CSV and the page                              (pure)
picture    the PNGs                                              (a process of its own: matplotlib)
"""
