// An OpenID Connect provider for tests: npm's oidc-provider, with accounts read from stdin.
import { createInterface } from "node:readline";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const { Provider } = await import(pathToFileURL(process.env.OIDC_PROVIDER).href);
let accounts = {};
let handler = (_request, response) => response.writeHead(503).end();
const server = createServer((request, response) => handler(request, response));
await new Promise((ready) => server.listen(Number(process.env.PORT || 0), "127.0.0.1", ready));
const issuer = `http://127.0.0.1:${server.address().port}`;
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "crawlyard",
      client_secret: "a-secret-of-the-client-of-some-length",
      redirect_uris: ["http://testserver/admin/sign-on/answer"],
      grant_types: ["authorization_code", "refresh_token"],
    },
  ],
  scopes: ["openid", "profile", "email", "groups", "offline_access"],
  claims: {
    openid: ["sub"],
    profile: ["preferred_username", "given_name", "family_name"],
    email: ["email"],
    groups: ["groups"],
  },
  pkce: { required: () => true },
  cookies: { keys: ["a", "b"] },
  issueRefreshToken: async () => process.env.REFRESH !== "no",
  findAccount: async (_context, id) => {
    if (accounts[id] === undefined) return undefined;
    return { accountId: id, claims: async () => ({ sub: id, ...accounts[id] }) };
  },
});
handler = provider.callback();
createInterface({ input: process.stdin })
  .on("line", (line) => {
    accounts = JSON.parse(line);
    console.log("done");
  })
  .on("close", () => process.exit(0));
console.log(issuer);
