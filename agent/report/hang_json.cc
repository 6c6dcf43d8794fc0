#include "agent/report/hang_json.h"

#include <nlohmann/json.hpp>

namespace muster {

nlohmann::ordered_json hang_json(const HangReport& hang) {
  nlohmann::ordered_json json;
  json["ranks"] = hang.ranks;
  json["class"] = hang.what;
  json["by"] = hang.by;
  json["group"] = hang.group;
  json["operation"] = hang.operation;
  json["ordinal"] = nlohmann::ordered_json();
  if (hang.ordinal > 0) json["ordinal"] = hang.ordinal;
  json["waiting"] = hang.waiting;
  json["seconds"] = hang.seconds;
  json["confidence"] = hang.confidence;
  json["text"] = hang.text;
  return json;
}

}  // namespace muster
