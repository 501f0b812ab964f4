"""`python -m flowgate.bench.agentdojo`: the command of `cli`, with advice where AgentDojo is not installed."""

import sys

try:
    from .cli import main
except ImportError as error:
    print(f"error: {error}; install AgentDojo: pip install agentdojo==0.1.35", file=sys.stderr)
    sys.exit(2)

if __name__ == "__main__":
    sys.exit(main())
