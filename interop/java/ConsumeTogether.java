// Reads a topic with two members of a group of the new consumer protocol: arguments are the brokers, the topic, the group
// and the number of records. Prints what each member reads, then commits and closes.

import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ConsumeTogether {
    private static final int PARTITIONS = 4;

    private static boolean isAtEnd(KafkaConsumer<String, String> member, long end) {
        return member.assignment().stream().allMatch(each -> member.position(each) == end);
    }

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("group.protocol", "consumer");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        int expected = Integer.parseInt(arguments[3]);
        try (KafkaConsumer<String, String> one = new KafkaConsumer<>(settings);
             KafkaConsumer<String, String> two = new KafkaConsumer<>(settings)) {
            one.subscribe(List.of(arguments[1]));
            two.subscribe(List.of(arguments[1]));
            // Both members get a part, and read it to the end. The first one may have read everything before.
            long deadline = System.currentTimeMillis() + 60_000;
            Set<String> seen = new HashSet<>();
            while ((one.assignment().isEmpty() || two.assignment().isEmpty()
                    || one.assignment().size() + two.assignment().size() < PARTITIONS
                    || !isAtEnd(one, expected / PARTITIONS) || !isAtEnd(two, expected / PARTITIONS)
                    || seen.size() < expected) && System.currentTimeMillis() < deadline) {
                for (KafkaConsumer<String, String> each : List.of(one, two)) {
                    for (ConsumerRecord<String, String> record : each.poll(Duration.ofMillis(100))) {
                        seen.add(record.value());
                    }
                }
            }
            one.commitSync();
            two.commitSync();
            System.out.println(one.assignment().size() + " " + two.assignment().size() + " " + seen.size());
        }
    }
}
