// _muster_ring: the functions of ring::RingWriter that the recorder of a Python process
// (_muster_recorder.py) needs, and those that note how the program ends (_muster_departure.py). A
// recorded call costs some 0.2 us. Every function may be called at any time; without a ring, and in
// forked children, those that record do nothing.
//
// Uses the limited API: one file serves every CPython from 3.9 on. METH_FASTCALL is declared from
// 3.10 on but works from 3.7 on; all other names are older.
#define Py_LIMITED_API 0x030a0000
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include <Python.h>
#include <unistd.h>

#include "rendezvous/ring/departure.h"
#include "rendezvous/ring/record_fd.h"
#include "rendezvous/ring/ring_owner.h"
#include "rendezvous/ring/ring_writer.h"

namespace muster::ring {
namespace {

// Attached by this process or its parent. Never destroyed: threads may record to the end.
RingWriter* writer = nullptr;

bool is_attached() {
  return writer != nullptr && writer->is_attached();
}

PyObject* none() {
  Py_INCREF(Py_None);
  return Py_None;
}

// Reads a call's arguments in order. One of the wrong type sets an exception; the rest are zeroes.
class Arguments {
 public:
  Arguments(PyObject* const* values, Py_ssize_t count, Py_ssize_t expected)
      : next_(values), sound_(count == expected) {
    if (!sound_) PyErr_SetString(PyExc_TypeError, "wrong number of arguments");
  }

  bool sound() const { return sound_; }

  template <typename Number>
  Number number() {
    if (!sound_) return Number();
    const long long value = PyLong_AsLongLong(*next_++);
    if (value == -1 && PyErr_Occurred() != nullptr) sound_ = false;
    return static_cast<Number>(value);
  }

  // Returns UTF-8 that lives as long as the argument.
  std::string_view text() {
    if (!sound_) return {};
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(*next_++, &size);
    sound_ = text != nullptr;
    return sound_ ? std::string_view(text, static_cast<size_t>(size)) : std::string_view();
  }

  // Reads a result of called(); nullopt: None or anything else.
  std::optional<Pending> pending() {
    if (!sound_) return {};
    PyObject* const object = *next_++;
    if (object == Py_None) return {};
    Pending pending;
    char* bytes = nullptr;
    Py_ssize_t size = 0;
    sound_ = PyBytes_AsStringAndSize(object, &bytes, &size) == 0;
    if (!sound_ || size != sizeof pending) return {};
    std::memcpy(&pending, bytes, sizeof pending);
    return pending;
  }

 private:
  PyObject* const* next_;
  bool sound_;
};

PyObject* to_python(const Pending& pending) {
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(&pending), sizeof pending);
}

// Returns None if attached, else the reason why not; "" if another recorder owns the ring.
PyObject* attach(PyObject* /*module*/, PyObject* const* values, Py_ssize_t count) {
  Arguments arguments(values, count, 1);
  const std::string_view record_fd = arguments.text();
  if (!arguments.sound()) return nullptr;
  if (is_attached()) return none();
  std::string why;
  try {
    writer = RingWriter::attach(record_fd, Source::python_hook, why).release();
    if (writer == nullptr && has_owner(record_fd)) why.clear();
  } catch (const std::exception& error) {
    why = error.what();
  }
  return writer != nullptr
             ? none()
             : PyUnicode_FromStringAndSize(why.data(), static_cast<Py_ssize_t>(why.size()));
}

PyObject* open_group(PyObject* /*module*/, PyObject* const* values, Py_ssize_t count) {
  Arguments arguments(values, count, 5);
  const std::string_view id = arguments.text();
  const std::string_view name = arguments.text();
  const std::string_view ranks = arguments.text();
  const int size = arguments.number<int>();
  const int own_rank = arguments.number<int>();
  if (!arguments.sound()) return nullptr;
  const int32_t group = is_attached() ? writer->open_group({.id = id,
                                                            .name = name,
                                                            .ranks = ranks,
                                                            .size = size,
                                                            .own_rank = own_rank,
                                                            .completion_is_late = true})
                                      : -1;
  return PyLong_FromLong(group);
}

// Arguments: group, value.
template <typename Value, void (RingWriter::*set)(int32_t, Value)>
PyObject* set_of_group(PyObject* /*module*/, PyObject* const* values, Py_ssize_t count) {
  Arguments arguments(values, count, 2);
  const auto group = arguments.number<int32_t>();
  const auto value = arguments.number<Value>();
  if (!arguments.sound()) return nullptr;
  if (is_attached()) (writer->*set)(group, value);
  return none();
}

Call call_in(Arguments& arguments) {
  Call call;
  call.kind = arguments.number<CallKind>();
  call.type = arguments.number<ElementType>();
  call.reduction = arguments.number<Reduction>();
  call.is_v = arguments.number<int>() != 0;
  call.is_synchronous = arguments.number<int>() != 0;
  call.root = arguments.number<int32_t>();
  call.count = arguments.number<uint64_t>();
  return call;
}

const void* site_in(Arguments& arguments) {
  return reinterpret_cast<const void*>(arguments.number<uintptr_t>());
}

// Arguments: group, ordinal, kind, type, reduction, is_v, is_synchronous, root, count, site.
PyObject* called(PyObject* /*module*/, PyObject* const* values, Py_ssize_t count) {
  Arguments arguments(values, count, 10);
  const auto group = arguments.number<int32_t>();
  const auto ordinal = arguments.number<uint64_t>();
  const Call call = call_in(arguments);
  const void* const site = site_in(arguments);
  if (!arguments.sound()) return nullptr;
  return is_attached() ? to_python(writer->called(group, ordinal, call, site)) : none();
}

// Arguments: group, tag, kind, type, reduction, is_v, is_synchronous, peer, count, site.
PyObject* message_called(PyObject* /*module*/, PyObject* const* values, Py_ssize_t count) {
  Arguments arguments(values, count, 10);
  const auto group = arguments.number<int32_t>();
  const auto tag = arguments.number<int>();
  const Call call = call_in(arguments);
  const void* const site = site_in(arguments);
  if (!arguments.sound()) return nullptr;
  return is_attached() ? to_python(writer->message_called(group, call, tag, site)) : none();
}

using End = void (RingWriter::*)(const Pending&);

template <End end>
PyObject* ended(PyObject* /*module*/, PyObject* const* values, Py_ssize_t count) {
  Arguments arguments(values, count, 1);
  const std::optional<Pending> pending = arguments.pending();
  if (!arguments.sound()) return nullptr;
  if (pending && is_attached()) (writer->*end)(*pending);
  return none();
}

PyObject* now(PyObject* /*module*/, PyObject* const* /*values*/, Py_ssize_t /*count*/) {
  return PyLong_FromUnsignedLongLong(is_attached() ? writer->now() : 0);
}

// Arguments: the now() at which the look began.
PyObject* looked(PyObject* /*module*/, PyObject* const* values, Py_ssize_t count) {
  Arguments arguments(values, count, 1);
  const auto began = arguments.number<uint64_t>();
  if (!arguments.sound()) return nullptr;
  if (is_attached()) writer->looked(began);
  return none();
}

PyObject* name_site(PyObject* /*module*/, PyObject* const* values, Py_ssize_t count) {
  Arguments arguments(values, count, 1);
  const std::string_view text = arguments.text();
  if (!arguments.sound()) return nullptr;
  const void* const site = is_attached() ? writer->name_site(text) : nullptr;
  return PyLong_FromLongLong(static_cast<long long>(reinterpret_cast<uintptr_t>(site)));
}

PyObject* note_failure(PyObject* /*module*/, PyObject* const* values, Py_ssize_t count) {
  Arguments arguments(values, count, 2);
  const auto group = arguments.number<int32_t>();
  const std::string_view message = arguments.text();
  if (!arguments.sound()) return nullptr;
  if (is_attached()) writer->note_failure(group, message);
  return none();
}

// ---- how the program ends

// The rank's ring, whatever records its calls; nullptr: there is none.
Ring* ring_of(std::string_view record_fd) {
  static Ring* ring = nullptr;
  std::string why;
  const std::optional<RecordFd> named = parse_record_fd(record_fd);
  if (ring == nullptr && named) ring = map_ring(*named, /*writable=*/true, why);
  return ring;
}

// Arguments: MUSTER_RECORD_FD, DepartureKind, error, site, threads, and whether the exception was
// noted before, whose time it keeps.
PyObject* note_departure(PyObject* /*module*/, PyObject* const* values, Py_ssize_t count) {
  Arguments arguments(values, count, 6);
  const std::string_view record_fd = arguments.text();
  Departure departure;
  departure.kind = arguments.number<DepartureKind>();
  departure.error = arguments.text();
  departure.site = arguments.text();
  departure.threads = arguments.text();
  const bool is_known = arguments.number<int>() != 0;
  if (!arguments.sound()) return nullptr;
  Ring* const ring = ring_of(record_fd);
  if (ring == nullptr) return none();
  const uint64_t before = ring->notes.departure.time_ns.load(kRelaxed);
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  departure.time_ns = is_known && before != 0 ? static_cast<int64_t>(before)
                                              : std::chrono::nanoseconds(now).count();
  departure.pid = getpid();
  put_departure(ring->notes.departure, departure);
  wake_readers(ring->head);
  return none();
}

// Arguments: MUSTER_RECORD_FD.
PyObject* withdraw_departure(PyObject* /*module*/, PyObject* const* values, Py_ssize_t count) {
  Arguments arguments(values, count, 1);
  const std::string_view record_fd = arguments.text();
  if (!arguments.sound()) return nullptr;
  Ring* const ring = ring_of(record_fd);
  if (ring != nullptr) take_back_departure(ring->notes.departure);
  return none();
}

// ---- torch's Work.wait

PyObject* original_wait = nullptr;
PyObject* after_wait = nullptr;

// Calls torch's Work.wait and, if that raised nothing, after_wait(work). In C, since a function in
// Python would show in the traceback of every collective that fails.
PyObject* wait_and_note(PyObject* work, PyObject* arguments, PyObject* keywords) {
  PyObject* const self = PyTuple_Pack(1, work);
  PyObject* const all = self == nullptr ? nullptr : PySequence_Concat(self, arguments);
  Py_XDECREF(self);
  if (all == nullptr) return nullptr;
  PyObject* const result = PyObject_Call(original_wait, all, keywords);
  Py_DECREF(all);
  if (result == nullptr) return nullptr;
  PyObject* const noted = PyObject_CallFunctionObjArgs(after_wait, work, nullptr);
  if (noted != nullptr) {
    Py_DECREF(noted);
    return result;
  }
  Py_DECREF(result);  // A signal's handler has raised an exception.
  return nullptr;
}

// With the documentation of torch's own.
PyMethodDef wait_method = {"wait",
                           reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(wait_and_note)),
                           METH_VARARGS | METH_KEYWORDS, nullptr};

// Arguments: torch's class Work, a function of a Work. May be called once.
PyObject* follow_wait(PyObject* /*module*/, PyObject* const* values, Py_ssize_t count) {
  if (count != 2 || !PyType_Check(values[0]) || original_wait != nullptr) {
    PyErr_SetString(PyExc_TypeError, "wrong arguments, or the second call");
    return nullptr;
  }
  PyObject* const original = PyObject_GetAttrString(values[0], "wait");
  if (original == nullptr) return nullptr;
  PyObject* const doc = PyObject_GetAttrString(original, "__doc__");  // Kept for ever.
  if (doc != nullptr && PyUnicode_Check(doc))
    wait_method.ml_doc = PyUnicode_AsUTF8AndSize(doc, nullptr);
  PyErr_Clear();
  PyObject* const descriptor =
      PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(values[0]), &wait_method);
  const bool is_set =
      descriptor != nullptr && PyObject_SetAttrString(values[0], "wait", descriptor) == 0;
  Py_XDECREF(descriptor);
  if (!is_set) {
    Py_DECREF(original);
    return nullptr;
  }
  original_wait = original;
  after_wait = values[1];
  Py_INCREF(after_wait);
  return none();
}

template <typename Function>
PyMethodDef method(const char* name, Function function) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function)), METH_FASTCALL,
          nullptr};
}

PyMethodDef methods[] = {
    method("attach", attach),
    method("open_group", open_group),
    method("set_state", set_of_group<GroupState, &RingWriter::set_state>),
    method("set_completion_unknown", set_of_group<bool, &RingWriter::set_completion_unknown>),
    method("called", called),
    method("message_called", message_called),
    method("completed", ended<&RingWriter::completed>),
    method("failed", ended<&RingWriter::failed>),
    method("withdrawn", ended<&RingWriter::withdrawn>),
    method("now", now),
    method("looked", looked),
    method("name_site", name_site),
    method("note_failure", note_failure),
    method("note_departure", note_departure),
    method("withdraw_departure", withdraw_departure),
    method("follow_wait", follow_wait),
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_muster_ring", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr,
};

// Adds an enum to the module as a dict `name`: {"sum": 1, ...}.
template <typename Enum>
bool add_numbers(PyObject* module, const char* name, Enum last) {
  PyObject* const numbers = PyDict_New();
  if (numbers == nullptr) return false;
  bool added = true;
  for (int i = 0; added && i <= static_cast<int>(last); ++i) {
    PyObject* const number = PyLong_FromLong(i);
    added = number != nullptr &&
            PyDict_SetItemString(numbers, name_of(static_cast<Enum>(i)), number) == 0;
    Py_XDECREF(number);
  }
  added = added && PyModule_AddObject(module, name, numbers) == 0;
  if (!added) Py_DECREF(numbers);
  return added;
}

bool add_constants(PyObject* module) {
  return add_numbers(module, "KINDS", kLastCallKind) &&
         add_numbers(module, "TYPES", ElementType::boolean) &&
         add_numbers(module, "REDUCTIONS", Reduction::premultiplied_sum) &&
         PyModule_AddIntConstant(module, "UNUSED", static_cast<long>(GroupState::unused)) == 0 &&
         PyModule_AddIntConstant(module, "READY", static_cast<long>(GroupState::ready)) == 0 &&
         PyModule_AddIntConstant(module, "FAILED", static_cast<long>(GroupState::failed)) == 0 &&
         PyModule_AddIntConstant(module, "CLOSED", static_cast<long>(GroupState::closed)) == 0 &&
         PyModule_AddIntConstant(module, "LEFT", static_cast<long>(DepartureKind::left)) == 0 &&
         PyModule_AddIntConstant(module, "RAISED", static_cast<long>(DepartureKind::raised)) == 0 &&
         PyModule_AddIntConstant(module, "UNCAUGHT", static_cast<long>(DepartureKind::uncaught)) ==
             0 &&
         PyModule_AddIntConstant(module, "THREAD_ENDED",
                                 static_cast<long>(DepartureKind::thread_ended)) == 0;
}

}  // namespace
}  // namespace muster::ring

PyMODINIT_FUNC PyInit__muster_ring() {
  PyObject* const module = PyModule_Create(&muster::ring::definition);
  if (module == nullptr || muster::ring::add_constants(module)) return module;
  Py_DECREF(module);
  return nullptr;
}
