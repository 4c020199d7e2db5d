-- Finds the measurement of a response in a long conversation, for a barge-in and for feedback.
CREATE INDEX measurements_of_response ON measurements (session, response);
