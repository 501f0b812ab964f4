// A certified OpenID provider on this machine, with two accounts, a client for the page and one for a program.

import http from "node:http";
import path from "node:path";
import { pathToFileURL } from "node:url";

const load = (file) => import(pathToFileURL(path.join(process.env.MODULES, file)));
const { Provider } = await load("oidc-provider/lib/index.js");
const { exportJWK, generateKeyPair } = await load("jose/dist/webapi/index.js");

const ACCOUNTS = new Map([
  ["ann", { preferred_username: "ann@corp.example", groups: ["staff", "finance"] }],
  ["eve", { preferred_username: "eve@corp.example", groups: ["staff"] }],
]);
const AUDIENCES = { "urn:flowgate": "flowgate", "urn:other": "other" };

/** Returns a private key for an algorithm. */
async function key(algorithm, kid) {
  const { privateKey } = await generateKeyPair(algorithm, { extractable: true });
  return { ...(await exportJWK(privateKey)), kid, alg: algorithm, use: "sig" };
}

/** Starts a provider that signs with an algorithm. `rotate` replaces its keys. */
export async function start(algorithm, redirect) {
  const server = http.createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const common = { id_token_signed_response_alg: algorithm };
  const configuration = (jwk) => ({
    jwks: { keys: [jwk] },
    cookies: { keys: ["compat"] },
    enabledJWA: { idTokenSigningAlgValues: [algorithm] },
    claims: { openid: ["sub"], profile: ["preferred_username"], groups: ["groups"] },
    conformIdTokenClaims: false,
    ttl: { AccessToken: 600, ClientCredentials: 600, Grant: 600, IdToken: 600, Interaction: 600, Session: 600 },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...ACCOUNTS.get(id) }) }),
    clients: [
      { ...common, client_id: "gate", client_secret: "a secret+with/signs", redirect_uris: [redirect] },
      { ...common, client_id: "ci", client_secret: "ci-secret", grant_types: ["client_credentials"], redirect_uris: [], response_types: [] },
    ],
    features: {
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_, resource) => ({ scope: "", audience: AUDIENCES[resource], accessTokenFormat: "jwt", jwt: { sign: { alg: algorithm } } }),
      },
    },
  });
  let callback;
  const rotate = async (kid) => {
    callback = new Provider(issuer, configuration(await key(algorithm, kid))).callback();
  };
  await rotate("first");
  server.on("request", (request, response) => callback(request, response));
  const stop = () => {
    server.close();
    server.closeAllConnections();
  };
  return { issuer, rotate, stop };
}

/** Obtains an access token by the client credentials. */
export async function accessToken(issuer, resource = "urn:flowgate") {
  const response = await fetch(`${issuer}/token`, {
    method: "POST",
    headers: { authorization: `Basic ${btoa("ci:ci-secret")}`, "content-type": "application/x-www-form-urlencoded" },
    body: new URLSearchParams({ grant_type: "client_credentials", resource }),
  });
  const body = await response.json();
  if (!response.ok) throw new Error(JSON.stringify(body));
  return body.access_token;
}
