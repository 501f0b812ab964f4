# Sourced by the tests with coding agents: installs them into $tools, from the versions in package.json.
if ! cmp --quiet "$root/compat/hooks/package.json" "$tools/installed.json"; then
    rm -rf "$tools"
    mkdir -p "$tools"
    cp "$root/compat/hooks/package.json" "$tools/package.json"
    npm install --prefix "$tools" --silent --no-audit --no-fund --ignore-scripts
    # The one script that it needs puts the program for this machine in its place.
    (cd "$tools" && node node_modules/@anthropic-ai/claude-code/install.cjs)
    cp "$root/compat/hooks/package.json" "$tools/installed.json"
fi
