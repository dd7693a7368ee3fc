"""The probe on several hosts: a launcher (torchrun, srun, deepspeed, mpirun) starts one process for each rank.

Each of them is a *member*: it starts, watches and stops the one process of its own rank, with a supervisor and a
janitor of its own. Rank 0 is also the *leader*: it says what runs, decides from the states of all members how an arm
ended, and writes the report.
"""
