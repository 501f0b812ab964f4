# Sourced by the scripts beside it, which have set `root`.

# Prints the path of the program `flowgate`: `FLOWGATE_BIN`, or built here.
flowgate_program() {
    if [ -n "${FLOWGATE_BIN:-}" ]; then
        realpath "$FLOWGATE_BIN"
    else
        cargo build --quiet --locked --manifest-path "$root/Cargo.toml" -p flowgate-cli
        echo "$(target_folder)/debug/flowgate"
    fi
}

# Prints the path of an example: in `FLOWGATE_EXAMPLES`, or built here. Arguments: PACKAGE EXAMPLE.
example_program() {
    if [ -n "${FLOWGATE_EXAMPLES:-}" ]; then
        realpath "$FLOWGATE_EXAMPLES/$2"
    else
        cargo build --quiet --locked --manifest-path "$root/Cargo.toml" -p "$1" --example "$2"
        echo "$(target_folder)/debug/examples/$2"
    fi
}

target_folder() {
    cargo metadata --format-version 1 --no-deps --manifest-path "$root/Cargo.toml" |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])'
}
