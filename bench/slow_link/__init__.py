"""`./dev bench slow-link`: gradsieve beside PyTorch's own ways to average, over links that are slow in truth. Standard library,
Debian's python3-torch and python3-numpy; python3-matplotlib for the picture. README.md of bench/ says how to run it.

main       options, what is missing, the order of things        (any process)
link       two network namespaces and the shaped link            (the command's process)
cluster    daemons and rank processes in them                    (the command's process)
network    the model, and gradients recorded while it trains     (a process of its own)
plan       what `gradsieve plan` foresees                       (a call of the tool)
rank       one rank: does a step as it is told                   (a rank's process)
methods    what a step is, for each of the compared ways         (a rank's process)
paired     medians, paired ratios, verdicts                      (pure)
report     tables, CSV and the page                              (pure)
picture    the PNG                                               (a process of its own: matplotlib)
"""
