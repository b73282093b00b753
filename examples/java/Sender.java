import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Sends to whichever brokers the name servers tell; prints the broker of each message. */
public class Sender {
  public static void main(String[] arguments) throws Exception {
    DefaultMQProducer producer = new DefaultMQProducer("order-senders");
    producer.setNamesrvAddr(arguments[0]);
    producer.start();
    for (int number = 0; number < Integer.parseInt(arguments[3]); number++) {
      String body = arguments[2] + " java-" + number;
      SendResult result = producer.send(new Message(arguments[1], body.getBytes()), 10_000);
      System.out.println(result.getMessageQueue().getBrokerName());
    }
    producer.shutdown();
    System.exit(0);
  }
}
