// Collects records and stacks of the job's ranks and variables of its nodes, here and from other
// nodes, whose questions it answers for this node alone. Control loop only.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/control/control_protocol.h"
#include "agent/job/job_seam.h"
#include "agent/job/node_answers.h"
#include "agent/job/own_ranks.h"
#include "agent/job/peers.h"
#include "rendezvous/membership/agent_protocol.h"
#include "rendezvous/net/drive.h"

namespace muster {

class JobAnswers {
 public:
  using NodeLines = std::vector<membership::NodeLine>;
  using AskedFor = std::function<control::Request(control::RankRanges)>;
  using AnswersDone = std::function<void(std::vector<NodeAnswer>)>;
  using RecordsDone = std::function<void(Result<control::Records>)>;
  using StacksDone = std::function<void(Result<control::Stacks>)>;
  // `variables`: what this node's workers get.
  JobAnswers(boost::asio::io_context& io, JobSeam& job, OwnRanks& own,
             std::function<control::Reply()> variables);

  void begin(const membership::Round& round);
  void on_letter(int from, const std::string& payload);

  void records(const control::RecordsRequest& request, RecordsDone done);
  void stacks(const control::StacksRequest& request, StacksDone done);
  // The job's ranks within `ranges`. Fails before the first attempt.
  Result<std::vector<int>> wanted(const control::RankRanges& ranges) const;
  // Asks the nodes of these ranks, which are sorted, and waits for `limit` at most.
  void ask(const std::vector<int>& ranks, const AskedFor& request, Duration limit,
           AnswersDone done);

 private:
  using ReplyDone = OwnRanks::ReplyDone;

  void find_nodes(std::function<void(const NodeLines&)> next);
  void ask_others(std::vector<NodeAnswer> asked, const AskedFor& request, Duration limit,
                  AnswersDone done);
  void answer_here(const control::Request& request, ReplyDone done);
  void perform(const Peers::Effect& effect);
  void serve(const Peers::Serve& serve);

  JobSeam& job_;
  OwnRanks& own_;
  const std::function<control::Reply()> variables_;
  Peers peers_;
  Drive<Peers, Peers::Tick> drive_;
  membership::Round round_;
  NodeLines nodes_;  // That round's; fetched when first needed.
};

}  // namespace muster
