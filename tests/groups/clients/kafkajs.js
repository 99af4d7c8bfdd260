// Group members with kafkajs; see script.py for the commands and events. Its own assignor has a name that other libraries
// do not know. The range assignor below lets it share a group with them. It has no callback before partitions are revoked.

const { createInterface } = require('readline')
const { Kafka, AssignerProtocol, logLevel } = require('kafkajs')

const members = {}
const closed = new Set()
const { MemberAssignment, MemberMetadata } = AssignerProtocol

function emit(member, event, what) {
  const at = Number(process.hrtime.bigint()) / 1e9
  process.stdout.write(JSON.stringify({ at, member, event, ...what }) + '\n')
}

// The range assignor: the sorted partitions of each topic are split evenly; the first members get one more.
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
    // A consumer that is closed while it restarts after a crash still joins.
    if (closed.has(member)) setImmediate(() => consumer.disconnect())
    emit(member, 'owns', { partitions: [] })
    emit(member, 'owns', { partitions: payload.memberAssignment[topic] || [] })
  })
  consumer.on(CRASH, ({ payload }) => emit(member, 'crashed', { why: String(payload.error), restart: payload.restart }))
  await consumer.connect()
  await subscribe(consumer, topic)
  await consumer.run({
    autoCommit: commits === 'auto',
    autoCommitInterval: 500,
    eachBatch: async ({ batch: { partition, messages } }) => {
      const last = Number(messages[messages.length - 1].offset)
      emit(member, 'read', { partition, first: Number(messages[0].offset), count: messages.length })
      if (commits === 'each') {
        try {
          await consumer.commitOffsets([{ topic, partition, offset: String(last + 1) }])
        } catch (error) {
          // kafkajs delivers a failed batch again.
          emit(member, 'again', { partition })
          throw error
        }
        emit(member, 'committed', { offsets: { [partition]: last + 1 } })
      }
    },
  })
}

// A restarted broker may not know the topic yet, or the connection may be lost. Other libraries retry by themselves.
async function subscribe(consumer, topic) {
  for (let left = 100; ; left--) {
    try {
      return await consumer.subscribe({ topic, fromBeginning: true })
    } catch (error) {
      const isRetriable = error.type === 'UNKNOWN_TOPIC_OR_PARTITION' || error.name === 'KafkaJSConnectionClosedError'
      if (!isRetriable || left === 0) throw error
      await new Promise(resolve => setTimeout(resolve, 100))
    }
  }
}

async function close({ member }) {
  const began = Date.now()
  closed.add(member)
  await members[member].disconnect()
  emit(member, 'closed', { seconds: (Date.now() - began) / 1000 })
}

createInterface({ input: process.stdin }).on('line', line => {
  const what = JSON.parse(line)
  const doing = what.do === 'join' ? join : close
  doing(what).catch(error => emit(what.member, 'failed', { why: String(error.stack) }))
}).on('close', () => process.exit(0))
