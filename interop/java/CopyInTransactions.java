// Copies a topic in transactions: arguments are two files, with the settings of the producer and of the consumer, the
// input topic, the output topic, and the probability that a transaction is left open and its clients are replaced.
// Prints a line per transaction: "committed", or "aborted" with the error. Prints "restarted" with the error that made
// it replace its clients. Stops at the end of standard input.

import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;

public class CopyInTransactions {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final Duration CLOSE = Duration.ofSeconds(5);
    private static final long PAUSE_MS = 100;

    private final KafkaProducer<byte[], byte[]> producer;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final String output;
    private final Random random;
    private final double crashes;

    private static volatile boolean over = false;

    /** The clients are replaced in the middle of a transaction. */
    private static class ClientCrash extends KafkaException {
    }

    private CopyInTransactions(
            KafkaProducer<byte[], byte[]> producer,
            KafkaConsumer<byte[], byte[]> consumer,
            String output,
            Random random,
            double crashes) {
        this.producer = producer;
        this.consumer = consumer;
        this.output = output;
        this.random = random;
        this.crashes = crashes;
    }

    public static void main(String[] arguments) throws Exception {
        Properties producing = load(arguments[0]);
        Properties consuming = load(arguments[1]);
        Random random = new Random(producing.getProperty("transactional.id").hashCode());
        Thread ending = new Thread(CopyInTransactions::waitForEnd);
        ending.setDaemon(true);
        ending.start();
        while (!over) {
            KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(producing);
            KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(consuming);
            try {
                new CopyInTransactions(
                        producer, consumer, arguments[3], random, Double.parseDouble(arguments[4]))
                    .copy(arguments[2]);
            } catch (KafkaException error) {
                System.out.println("restarted " + error.getClass().getSimpleName());
                Thread.sleep(PAUSE_MS);
            } finally {
                // An open transaction stays open, as after a crash.
                producer.close(Duration.ZERO);
                consumer.close(CLOSE);
            }
        }
    }

    private static Properties load(String path) throws IOException {
        Properties settings = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(path))) {
            settings.load(reader);
        }
        return settings;
    }

    private static void waitForEnd() {
        try {
            while (System.in.read() >= 0) {
            }
        } catch (IOException ended) {
            // The other process has closed the pipe.
        }
        over = true;
    }

    /** Copies records until the end of the run. Throws KafkaException if it needs new clients. */
    private void copy(String input) {
        // The producer first: then the last transaction of this id is complete, and its offsets are committed.
        retry(producer::initTransactions);
        // With a listener, no partition moves to another member before the transaction has ended and `poll` is called.
        consumer.subscribe(List.of(input), new NoAction());
        while (!over) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
            if (!records.isEmpty()) {
                copyBatch(records);
            }
        }
    }

    private void copyBatch(ConsumerRecords<byte[], byte[]> records) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        try {
            producer.beginTransaction();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                producer.send(new ProducerRecord<>(output, record.partition(), null, record.value()));
                offsets.put(
                        new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            if (random.nextDouble() < crashes) {
                producer.flush();
                throw new ClientCrash();
            }
            retry(producer::commitTransaction);
            System.out.println("committed");
        } catch (ProducerFencedException
                | OutOfOrderSequenceException
                | AuthorizationException
                | ClientCrash fatal) {
            throw fatal;
        } catch (KafkaException error) {
            // After a fatal error this throws again.
            retry(producer::abortTransaction);
            System.out.println("aborted " + error.getClass().getSimpleName());
            retry(this::rewind);
        }
    }

    /** Continues at the committed offsets: the records of the aborted transaction are read again. */
    private void rewind() {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata position = committed.get(partition);
            consumer.seek(partition, position == null ? 0 : position.offset());
        }
    }

    /** Calls until the result is known. */
    private static void retry(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                if (over) {
                    throw error;
                }
            }
        }
    }

    private static class NoAction implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        }
    }
}
