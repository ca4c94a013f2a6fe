// What the producer and the worker of BullMQ share.

const IORedis = require("ioredis");

const QUEUE = "peers";
const connection = () => new IORedis(process.env.PEER_URL, { maxRetriesPerRequest: null });

module.exports = { connection, QUEUE };
