import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.Uuid;

/** Describes topics by id. Prints one line for each: the id, then its name and number of partitions, or the error. */
public class DescribeTopicsById {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings =
                Map.of("bootstrap.servers", arguments[0], "default.api.timeout.ms", "30000");
        List<Uuid> ids = List.of(arguments).stream().skip(1).map(Uuid::fromString).toList();
        try (Admin admin = Admin.create(settings)) {
            Map<Uuid, KafkaFuture<TopicDescription>> found =
                    admin.describeTopics(TopicCollection.ofTopicIds(ids)).topicIdValues();
            for (Uuid id : ids) {
                System.out.println(id + " " + line(found.get(id)));
            }
        }
    }

    private static String line(KafkaFuture<TopicDescription> future) throws InterruptedException {
        try {
            TopicDescription topic = future.get();
            return topic.name() + " " + topic.partitions().size();
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }
}
