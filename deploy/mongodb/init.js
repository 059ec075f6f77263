// Makes the replica set and its users; may be run again. See README.md.
//
// Run it beside the first member, over the loopback interface: there mongod lets the first user be
// made without a login, and nobody once there is one.

const adminPassword = process.env.MONGO_ADMIN_PASSWORD;
const appPassword = process.env.MONGO_APP_PASSWORD;
if (!adminPassword || !appPassword) {
  throw new Error("set MONGO_ADMIN_PASSWORD and MONGO_APP_PASSWORD");
}
const hosts = (process.env.MONGO_HOSTS || "mongo1:27017,mongo2:27018,mongo3:27019").split(",");
const admin = db.getSiblingDB("admin");

function code(error) {
  return error.codeName || String(error);
}

// --- the replica set ---
try {
  rs.initiate({
    _id: "rs0",
    members: hosts.map((host, index) => ({ _id: index, host, priority: index === 0 ? 2 : 1 })),
  });
  print(`initiated rs0: ${hosts.join(", ")}`);
} catch (error) {
  if (!["AlreadyInitialized", "Unauthorized"].includes(code(error))) throw error;
  print("rs0 is there already");
}
for (let seconds = 0; !db.hello().isWritablePrimary; seconds++) {
  if (seconds === 60) throw new Error("this member has not become the primary: run it there");
  sleep(1000);
}

// --- who keeps it ---
try {
  admin.createUser({ user: "admin", pwd: adminPassword, roles: ["root"] });
  print("made the user admin");
} catch (error) {
  // Somebody is there, or his login is needed: both mean that it has been made.
  print(`the user admin: ${code(error)}`);
}
admin.auth("admin", adminPassword);

// --- what Crawlyard may: its own databases have names that nobody knows before ---
const requests = {
  privileges: [
    {
      resource: { db: "", collection: "" },
      actions: [
        "find",
        "insert",
        "update",
        "remove",
        "createCollection",
        "dropCollection",
        "createIndex",
        "listIndexes",
        "listCollections",
        "collMod",
        "collStats",
        "dbStats",
      ],
    },
  ],
  // For the page of the nodes: serverStatus, replSetGetStatus, currentOp, listDatabases.
  roles: [{ role: "clusterMonitor", db: "admin" }],
};
if (admin.getRole("crawlyardRequests")) {
  admin.updateRole("crawlyardRequests", requests);
} else {
  admin.createRole({ role: "crawlyardRequests", ...requests });
}
const crawlyard = { pwd: appPassword, roles: [{ role: "crawlyardRequests", db: "admin" }] };
if (admin.getUser("crawlyard")) {
  admin.updateUser("crawlyard", crawlyard);
} else {
  admin.createUser({ user: "crawlyard", ...crawlyard });
}
print("the user crawlyard may keep requests");
