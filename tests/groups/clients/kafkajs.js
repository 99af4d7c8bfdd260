// Members of kafkajs'; see script.py for what is said and heard. It has one assignor of its own, whose name nobody else
// knows; range, so that it can be in a group with others, is below. It tells nobody before partitions are given up.

const { createInterface } = require('readline')
const { Kafka, AssignerProtocol, logLevel } = require('kafkajs')

const members = {}
const closed = new Set()
const { MemberAssignment, MemberMetadata } = AssignerProtocol

function say(member, event, what) {
  const at = Number(process.hrtime.bigint()) / 1e9
  process.stdout.write(JSON.stringify({ at, member, event, ...what }) + '\n')
}

// The partitions of each topic in a row, cut into as many pieces as there are members; the first are longer by one.
const range = ({ cluster }) => ({
  name: 'range',
  version: 0,
  protocol: ({ topics }) => ({
    name: 'range',
    metadata: MemberMetadata.encode({ version: 0, topics, userData: Buffer.alloc(0) }),
  }),
  assign: async ({ members, topics }) => {
    const ids = members.map(({ memberId }) => memberId).sort()
    const shares = Object.fromEntries(ids.map(id => [id, {}]))
    for (const topic of topics) {
      const partitions = cluster.findTopicPartitionMetadata(topic).map(one => one.partitionId).sort((a, b) => a - b)
      const least = Math.floor(partitions.length / ids.length)
      const longer = partitions.length % ids.length
      ids.forEach((id, at) => {
        const begin = at * least + Math.min(at, longer)
        shares[id][topic] = partitions.slice(begin, begin + least + (at < longer ? 1 : 0))
      })
    }
    return ids.map(memberId => ({
      memberId,
      memberAssignment: MemberAssignment.encode({ version: 0, assignment: shares[memberId], userData: Buffer.alloc(0) }),
    }))
  },
})

async function join({ member, servers, group, topic, assignor, session_ms, heartbeat_ms, commits }) {
  const kafka = new Kafka({
    clientId: 'kafkajs',
    brokers: servers.split(','),
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 100 },
  })
  const consumer = (members[member] = kafka.consumer({
    groupId: group,
    sessionTimeout: session_ms,
    heartbeatInterval: heartbeat_ms,
    maxWaitTimeInMs: 100,
    ...(assignor === 'range' ? { partitionAssigners: [range] } : {}),
  }))
  const { GROUP_JOIN, CRASH } = consumer.events
  consumer.on(GROUP_JOIN, ({ payload }) => {
    // One that is closed while it starts anew after a crash joins nevertheless.
    if (closed.has(member)) setImmediate(() => consumer.disconnect())
    say(member, 'owns', { partitions: [] })
    say(member, 'owns', { partitions: payload.memberAssignment[topic] || [] })
  })
  consumer.on(CRASH, ({ payload }) => say(member, 'crashed', { why: String(payload.error), restart: payload.restart }))
  await consumer.connect()
  await subscribe(consumer, topic)
  await consumer.run({
    autoCommit: commits === 'auto',
    autoCommitInterval: 500,
    eachBatch: async ({ batch: { partition, messages } }) => {
      const last = Number(messages[messages.length - 1].offset)
      say(member, 'read', { partition, first: Number(messages[0].offset), count: messages.length })
      if (commits === 'each') {
        try {
          await consumer.commitOffsets([{ topic, partition, offset: String(last + 1) }])
        } catch (error) {
          // A batch that could not be dealt with is given to us once more.
          say(member, 'again', { partition })
          throw error
        }
        say(member, 'committed', { offsets: { [partition]: last + 1 } })
      }
    },
  })
}

// A broker that has just come back may not have heard of the topic yet, and one that was asked may be gone. Other
// libraries ask again by themselves.
async function subscribe(consumer, topic) {
  for (let left = 100; ; left--) {
    try {
      return await consumer.subscribe({ topic, fromBeginning: true })
    } catch (error) {
      const passes = error.type === 'UNKNOWN_TOPIC_OR_PARTITION' || error.name === 'KafkaJSConnectionClosedError'
      if (!passes || left === 0) throw error
      await new Promise(resolve => setTimeout(resolve, 100))
    }
  }
}

async function close({ member }) {
  const began = Date.now()
  closed.add(member)
  await members[member].disconnect()
  say(member, 'closed', { seconds: (Date.now() - began) / 1000 })
}

createInterface({ input: process.stdin }).on('line', line => {
  const what = JSON.parse(line)
  const doing = what.do === 'join' ? join : close
  doing(what).catch(error => say(what.member, 'failed', { why: String(error.stack) }))
}).on('close', () => process.exit(0))
