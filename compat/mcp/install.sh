# Sourced by the scripts that need MCP's packages, which have set `root` and `tools`, the folder of the installation.

if ! cmp --quiet "$root/compat/mcp/package.json" "$tools/installed.json"; then
    rm -rf "$tools"
    mkdir -p "$tools"
    cp "$root/compat/mcp/package.json" "$tools/package.json"
    npm install --prefix "$tools" --silent --no-audit --no-fund --ignore-scripts
    cp "$root/compat/mcp/package.json" "$tools/installed.json"
fi
