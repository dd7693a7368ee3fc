"""Ranks that do not meet: addresses, ports, time-outs at the start."""

from __future__ import annotations

from dslint.triage.symptom import Cause, Pattern, Symptom, doctor

SYMPTOMS = (
    Symptom(
        name="client-socket-timeout",
        title="A rank could not reach the meeting point (rank 0's store)",
        meaning="Every rank connects to MASTER_ADDR:MASTER_PORT, where rank 0 listens. Nobody answered there in time: "
        "rank 0 did not start, ended, is late, or listens elsewhere.",
        role="timeout",
        causes=(
            Cause(
                "the launcher was not told that the job spans several nodes, or every node has its own port or address",
                ("DSL349", "DSL352", "DSL404"),
            ),
            Cause(
                "rank 0 was busy before it opened the store (data set preparation, model download)",
                ("DSL353", "DSL223"),
            ),
            Cause("rank 0 failed before: look for its first error in its own log", peer=True),
            Cause(
                "firewall, wrong interface, a host name that resolves to 127.x, proxies",
                checks=doctor("network-interface"),
            ),
        ),
        patterns=(
            Pattern(
                r"The client socket has timed out after (?P<time>[\d.]+ ?m?s) while trying to connect to "
                r"\((?P<host>[^,()]*), (?P<port>-?\d+)\)",
                gate="client socket has timed out",
            ),
            Pattern(r"TimeoutError: The client socket has timed out"),
        ),
    ),
    Symptom(
        name="clients-missing",
        title="Rank 0 waited for ranks that did not come",
        meaning="The store knows how many ranks the job has (WORLD_SIZE) and saw fewer of them in time.",
        role="timeout",
        causes=(
            Cause(
                "a node or rank was never started, or started with another world size, port or address",
                ("DSL349", "DSL352", "DSL404"),
            ),
            Cause("a rank failed or was killed before it connected: look for its first error", peer=True),
            Cause(
                "ranks start far apart (data set preparation): a longer timeout helps only here", ("DSL353", "DSL223")
            ),
        ),
        patterns=(
            Pattern(r"Timed out after \d+ seconds waiting for clients\. (?P<joined>\d+)/(?P<world>\d+) clients joined"),
        ),
    ),
    Symptom(
        name="store-wait-timeout",
        title="A rank waited for a key that no other rank wrote",
        meaning="Ranks exchange small keys through the store, when they create a process group for example. One rank "
        "never came to that point.",
        role="timeout",
        causes=(
            Cause("a process group is created, or a collective made, by some ranks only", ("DSL201", "DSL207")),
            Cause("two nodes carry the same node rank, or a node is missing", ("DSL349", "DSL352")),
        ),
        patterns=(
            Pattern(r"wait timeout after \d+ms, keys: (?P<keys>\S{1,200})"),
            Pattern(
                r"got error: (?:Socket Timeout|Timeout waiting for key)|RuntimeError: Socket Timeout|StoreTimeoutError"
            ),
        ),
    ),
    Symptom(
        name="elastic-rendezvous",
        title="The nodes of the job did not meet",
        meaning="torchrun's agents on the nodes meet before any rank starts. They did not in time.",
        role="timeout",
        causes=(
            Cause(
                "a node is missing, or was given another rendezvous id, endpoint or node count", ("DSL349", "DSL352")
            ),
            Cause("the endpoint's host name resolves differently on the nodes", checks=doctor("network-interface")),
        ),
        patterns=(Pattern(r"Rendezvous(?:Timeout|Connection|Closed)Error"),),
    ),
    Symptom(
        name="host-not-resolved",
        title="The address of the meeting point has no IP address",
        meaning="A rank asked for the address behind MASTER_ADDR and the name service knew none.",
        role="cause",
        causes=(
            Cause(
                "MASTER_ADDR is misspelt, empty (None) or known on another network only",
                ("DSL349",),
                doctor("network-interface", "leftover-launch-variables"),
            ),
        ),
        patterns=(
            Pattern(
                r"network addresses? of \((?P<host>[^,()]*), -?\d+\) cannot be retrieved \(gai error",
                gate="cannot be retrieved",
            ),
            Pattern(r"gaierror: \[Errno -[235]\]"),
        ),
    ),
    Symptom(
        name="address-in-use",
        title="The port of the meeting point is taken",
        meaning="Another process listens on MASTER_PORT on this machine: another job, ranks left over from the "
        "last run, "
        "or a second rank 0 of this job.",
        role="cause",
        causes=(
            Cause("a process of an earlier run still holds the port", checks=doctor("port-in-use")),
            Cause("two jobs on one machine use the same port: give each its own --master_port"),
            Cause("several processes believe they are rank 0 (started without a launcher)", ("DSL404", "DSL352")),
        ),
        patterns=(Pattern(r"(?:EADDRINUSE|(?i:address already in use))"),),
    ),
    Symptom(
        name="port-out-of-range",
        title="A port that does not exist",
        meaning="Ports end at 65535.",
        role="cause",
        causes=(Cause("--master_port or MASTER_PORT is too large, often computed from a job number", ("DSL309",)),),
        patterns=(Pattern(r"port must have value from 0 to 65535 but was"), Pattern(r"port must be 0-65535")),
    ),
    Symptom(
        name="rank-not-set",
        title="A distributed script was started without a launcher",
        meaning="RANK, WORLD_SIZE, MASTER_ADDR or MASTER_PORT are set by torchrun, deepspeed, srun wrappers and "
        "the like. "
        "Here nobody set them.",
        role="cause",
        causes=(
            Cause("started with plain python; use torchrun or deepspeed"),
            Cause("srun or mpirun starts the ranks, but the script expects torchrun's variables", ("DSL352", "DSL404")),
        ),
        patterns=(
            Pattern(r"environment variable (?P<name>RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected, but not set"),
            Pattern(r"KeyError: '(?P<name>RANK|LOCAL_RANK|WORLD_SIZE)'"),
            Pattern(r"ModuleNotFoundError: No module named 'mpi4py'"),
        ),
    ),
    Symptom(
        name="interface-missing",
        title="The network interface that was asked for does not exist",
        meaning="NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names an interface this machine does not have, or no usable "
        "interface is left.",
        role="cause",
        causes=(
            Cause(
                "a script pins eth0 or the like, and this machine calls it otherwise",
                checks=doctor("network-interface"),
            ),
        ),
        patterns=(
            Pattern(r"(?i:no socket interface found)", gate="socket interface found"),
            Pattern(r"ifa != nullptr\. Unable to find (?:address|interface) for: (?P<interface>\S+)"),
            Pattern(r"(?i:unable to find interface for)"),
        ),
    ),
    Symptom(
        name="gloo-connect",
        title="Gloo could not connect the ranks with each other",
        meaning="The ranks met, but could not open connections between each other: the address that a rank announced "
        "does not lead to it.",
        role="cause",
        causes=(
            Cause(
                "the announced interface is lo, a container bridge, or closed by a firewall",
                checks=doctor("network-interface"),
            ),
        ),
        patterns=(Pattern(r"[Gg]loo connectFullMesh failed"),),
    ),
    Symptom(
        name="ssh-refused",
        title="The launcher cannot log in to a node",
        meaning="deepspeed and pdsh start ranks by ssh without a password; one host refused.",
        role="cause",
        causes=(
            Cause(
                "the host key is not in known_hosts, or the key of this user is not on the node", checks=doctor("hosts")
            ),
        ),
        patterns=(
            Pattern(r"Host key verification failed", gate="Host key verification"),
            Pattern(r"Permission denied \(publickey", gate="Permission denied ("),
        ),
    ),
)
