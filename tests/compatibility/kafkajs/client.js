// One conversation of kafkajs with a broker: what to do comes in as JSON, what came of it goes out as JSON. An error is an answer, too: {"error": {"type": "TOPIC_ALREADY_EXISTS", "message": "…"}}.

const { readFileSync } = require('fs')
const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } = require('kafkajs')

const wish = JSON.parse(readFileSync(0))
const kafka = new Kafka({
  clientId: 'compatibility',
  brokers: [wish.servers],
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 100, retries: wish.retries === undefined ? 8 : wish.retries },
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

// One record after the other, each acknowledged before the next. A line per acknowledgement, so that whoever reads
// them can take the broker away in the middle.
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

// It wants to have seen the topic before it deletes records of it.
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

const commands = { produce, produceSlowly, administer, describeConfigs, deleteRecords }

commands[wish.command](wish)
  .then(result => console.log(JSON.stringify({ result })))
  .catch(error => {
    const cause = error.errors ? error.errors[0] : error
    const found = { type: cause.type || cause.name, message: cause.message }
    if (cause.cause && cause.cause.type) found.type = cause.cause.type
    console.log(JSON.stringify({ error: found }))
  })
