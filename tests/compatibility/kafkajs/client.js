// Runs one kafkajs command: reads its options as JSON from stdin and prints the result as JSON.
// Errors are printed as {"error": {"type": "TOPIC_ALREADY_EXISTS", "message": "…"}}.

const { readFileSync } = require('fs')
const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } = require('kafkajs')

// Time for a connection and for a login without retries, on a busy machine.
const TIMEOUT_MS = 30000
const options = JSON.parse(readFileSync(0))
// A token is sent as it is; other settings of a login are those of kafkajs.
const login = options.token
  ? { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: options.token }) }
  : options.sasl
const kafka = new Kafka({
  sasl: login,
  ssl: options.ca ? { ca: [options.ca] } : undefined,
  clientId: 'compatibility',
  brokers: [options.servers],
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 100, retries: options.retries === undefined ? 8 : options.retries },
})

const bytes = text => (text === null || text === undefined ? null : Buffer.from(text, 'base64'))

function asMessage(record) {
  return {
    key: bytes(record.key),
    value: bytes(record.value),
    partition: record.partition || 0,
    timestamp: record.timestamp === undefined ? undefined : String(record.timestamp),
    headers: record.headers,
  }
}

async function produce({ topic, records, codec, acks, idempotent, allowAutoTopicCreation }) {
  const producer = kafka.producer({ idempotent, allowAutoTopicCreation })
  await producer.connect()
  try {
    return await producer.send({
      topic,
      acks,
      compression: codec === 'gzip' ? CompressionTypes.GZIP : CompressionTypes.None,
      messages: records.map(asMessage),
    })
  } finally {
    await producer.disconnect()
  }
}

// Sends one record at a time and prints a line per acknowledgement, so that the test can restart the broker in between.
async function produceSlowly({ topic, count }) {
  const producer = kafka.producer()
  await producer.connect()
  for (let number = 0; number < count; number++) {
    await producer.send({ topic, acks: -1, messages: [{ value: String(number), partition: 0 }] })
    process.stdout.write(`${number}\n`)
  }
  await producer.disconnect()
  return 'done'
}

async function administer({ method, options }) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    const result = await admin[method](options)
    return result === undefined ? null : result
  } finally {
    await admin.disconnect()
  }
}

async function describeConfigs({ topic }) {
  const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic }]
  return administer({ method: 'describeConfigs', options: { resources, includeSynonyms: true } })
}

// kafkajs needs the topic's metadata before it can delete records.
async function deleteRecords({ topic, offset }) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    await admin.fetchTopicOffsets(topic)
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset }] })
    return await admin.fetchTopicOffsets(topic)
  } finally {
    await admin.disconnect()
  }
}

// The file has the key and the certificate of the client.
const certificate = file => (file ? { key: readFileSync(file), cert: readFileSync(file) } : {})

// Logs in with each of the given credentials and sends one record. Returns the error of each login, or null.
async function produceWithLogins({ topic, logins }) {
  const errors = []
  for (const { servers, ca, identity, sasl } of logins) {
    const { token, ...credentials } = sasl || {}
    const login = token ? { ...credentials, oauthBearerProvider: async () => ({ value: token }) } : sasl
    const secured = new Kafka({
      brokers: [servers],
      ssl: ca ? { ca: [readFileSync(ca)], ...certificate(identity) } : false,
      sasl: login,
      logLevel: logLevel.NOTHING,
      connectionTimeout: TIMEOUT_MS,
      authenticationTimeout: TIMEOUT_MS,
      retry: { retries: 0 },
    })
    const producer = secured.producer()
    try {
      await producer.connect()
      await producer.send({ topic, messages: [{ value: 'x' }] })
      errors.push(null)
    } catch (error) {
      errors.push(`${error.type || error.name}: ${error.message}`)
    } finally {
      await producer.disconnect()
    }
  }
  return errors
}

const commands = { produceWithLogins, produce, produceSlowly, administer, describeConfigs, deleteRecords }

commands[options.command](options)
  .then(result => console.log(JSON.stringify({ result })))
  .catch(error => {
    const cause = error.errors ? error.errors[0] : error
    const found = { type: cause.type || cause.name, message: cause.message }
    if (cause.cause && cause.cause.type) found.type = cause.cause.type
    console.log(JSON.stringify({ error: found }))
  })
