"""`./dev bench scaling`: what a step costs with more and more nodes. A simulation of up to 1,024 (gradsieve-simulate, C++, the
daemon's own job machines), and up to 16 real daemons, each in a network namespace of its own behind a limited link, which
has to agree with it. Standard library, Debian's python3-numpy; python3-matplotlib for the picture.

main       options, what is missing, the order of things        (any process)
star       network namespaces around a switch, links limited    (the command's process)
cluster    daemons and rank processes in them                    (the command's process)
rank       one rank: steps as it is told                         (a rank's process)
progress   what is done so far, in a file                        (the command's process)
simulated  calls of gradsieve-simulate                           (the command's process)
report     tables, CSV and the page                              (pure)
picture    the PNG                                               (a process of its own: matplotlib)

network_model, simulation, simulate: the program gradsieve-simulate.
"""
