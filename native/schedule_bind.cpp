// The simulator of schedules as Python sees it: functions over arrays.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <utility>

#include "assignment.h"
#include "bindings.h"
#include "rounds.h"
#include "schedule.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <typename T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <typename T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> array_of(std::vector<T>&& values) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* held) noexcept { delete static_cast<std::vector<T>*>(held); });
    return nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner);
}

template <typename T>
const T* column_of(const std::optional<Column<T>>& column, size_t count) {
    if (!column) return nullptr;
    if (column->size() != count) throw std::invalid_argument("Each column needs one value for each job");
    return column->data();
}

// What would let a simulation never end, or read outside an array, is refused here: the rest trusts its input.
void check(const apportion::ScheduleJobs& jobs, const apportion::ScheduleOptions& options) {
    const size_t systems = options.slots.size();
    for (int64_t job = 0; job < jobs.count; ++job) {
        if (!std::isfinite(jobs.arrival[job]) || (job > 0 && jobs.arrival[job] < jobs.arrival[job - 1]))
            throw std::invalid_argument("Arrivals must be finite and never fall");
        if (jobs.width[job] < 1) throw std::invalid_argument("A job needs one slot at least");
        if (jobs.limit && !(jobs.limit[job] > 0)) throw std::invalid_argument("A limit must be positive");
        const bool bound = jobs.only && jobs.only[job] >= 0;
        if (bound && static_cast<size_t>(jobs.only[job]) >= systems) throw std::invalid_argument("No such system");
        if (jobs.program && options.learn && jobs.program[job] >= options.programs)
            throw std::invalid_argument("No such class");
        bool fits = false;
        for (size_t system = 0; system < systems; ++system) {
            if (bound && static_cast<size_t>(jobs.only[job]) != system) continue;
            const double truth = jobs.truth[job * systems + system], predicted = jobs.predicted[job * systems + system];
            const bool here = jobs.width[job] <= options.slots[system] && std::isfinite(predicted);
            if (here && !(std::isfinite(truth) && truth > 0 && predicted > 0))
                throw std::invalid_argument("Times must be positive, and known where one is predicted");
            fits = fits || here;
        }
        if (!fits) throw std::invalid_argument("A job fits on no system");
    }
}

nb::tuple scheduled(bool in_order, Column<double> arrival, Column<int64_t> width, Matrix truth, Matrix predicted,
                    std::vector<int64_t> slots, std::optional<Matrix> sigma, std::optional<Column<double>> limit,
                    std::optional<Column<int32_t>> only, std::optional<Column<int32_t>> program,
                    std::optional<Column<double>> key, std::optional<Column<double>> age, int32_t backfill, int64_t depth,
                    bool late, bool by_limit, bool requeue, bool learn, double quantile_z, double tie,
                    double repeat_sigma, double explore, bool list, bool plan, int64_t programs,
                    std::optional<Matrix> class_sigma, std::optional<Matrix> class_deviation, double trust) {
    apportion::ScheduleJobs jobs;
    const size_t count = arrival.size();
    jobs.count = static_cast<int64_t>(count);
    if (width.size() != count || truth.shape(0) != count || predicted.shape(0) != count ||
        truth.shape(1) != slots.size() || predicted.shape(1) != slots.size() ||
        (sigma && (sigma->shape(0) != count || sigma->shape(1) != slots.size())))
        throw std::invalid_argument("Times need a row for each job and a column for each system");
    jobs.arrival = arrival.data(), jobs.width = width.data();
    jobs.truth = truth.data(), jobs.predicted = predicted.data();
    jobs.sigma = sigma ? sigma->data() : nullptr;
    jobs.limit = column_of(limit, count), jobs.only = column_of(only, count);
    jobs.program = column_of(program, count), jobs.key = column_of(key, count), jobs.age = column_of(age, count);
    apportion::ScheduleOptions options;
    options.slots = std::move(slots);
    options.backfill = static_cast<apportion::Backfill>(backfill);
    options.depth = depth, options.late = late, options.by_limit = by_limit, options.requeue = requeue;
    options.learn = learn && jobs.program, options.quantile_z = quantile_z, options.tie = tie;
    options.repeat_sigma = repeat_sigma, options.explore = explore, options.list = list, options.programs = programs;
    options.plan = plan && late;
    if (options.learn) {
        for (const auto& matrix : {class_sigma, class_deviation})
            if (!matrix || matrix->shape(0) != static_cast<size_t>(options.programs) ||
                matrix->shape(1) != options.slots.size())
                throw std::invalid_argument("Learning needs a sigma and a deviation for each class on each system");
        options.class_sigma = class_sigma->data(), options.class_deviation = class_deviation->data();
        options.trust = trust;
    }
    check(jobs, options);
    apportion::ScheduleResult result;
    {
        nb::gil_scoped_release released;
        result = in_order ? apportion::schedule_in_order(jobs, options) : apportion::schedule_by_events(jobs, options);
    }
    return nb::make_tuple(array_of(std::move(result.system)), array_of(std::move(result.start)),
                          array_of(std::move(result.end)), array_of(std::move(result.predicted)),
                          array_of(std::move(result.killed)), result.lost_slot_seconds, result.explored,
                          result.head_delay, result.restarted);
}

nb::tuple in_rounds(Column<double> arrival, Column<int64_t> width, Column<int64_t> steps, Matrix speed,
                    std::vector<int64_t> slots, nb::callable allocate, std::optional<nb::callable> order, double seconds,
                    double between_allocations, bool fill, bool drop) {
    apportion::RoundJobs jobs;
    const size_t count = arrival.size(), systems = slots.size();
    if (count == 0 || width.size() != count || steps.size() != count || speed.shape(0) != count ||
        speed.shape(1) != systems)
        throw std::invalid_argument("Speeds need a row for each job and a column for each system");
    jobs.count = static_cast<int64_t>(count);
    jobs.arrival = arrival.data(), jobs.width = width.data(), jobs.steps = steps.data(), jobs.speed = speed.data();
    for (size_t job = 0; job < count; ++job) {
        bool fits = false;
        for (size_t system = 0; system < systems; ++system)
            fits = fits || (speed(job, system) > 0 && width.data()[job] <= slots[system]);
        if (!fits || steps.data()[job] < 1 || width.data()[job] < 1 || !std::isfinite(arrival.data()[job]) ||
            (job > 0 && arrival.data()[job] < arrival.data()[job - 1]))
            throw std::invalid_argument("Each job needs steps, a system that it fits on, and its place in time");
    }
    if (!(seconds > 0)) throw std::invalid_argument("A round takes time");
    apportion::RoundOptions options;
    options.slots = std::move(slots), options.seconds = seconds, options.between_allocations = between_allocations;
    options.fill = fill, options.drop = drop;
    auto ask = [&](double now, const std::vector<int64_t>& active, const std::vector<int64_t>& left,
                   std::vector<double>& shares) {
        auto answer = nb::cast<Matrix>(allocate(now, array_of(std::vector<int64_t>(active)),
                                                array_of(std::vector<int64_t>(left))));
        if (answer.shape(0) != active.size() || answer.shape(1) != systems)
            throw std::invalid_argument("Shares need a row for each active job and a column for each system");
        std::copy(answer.data(), answer.data() + shares.size(), shares.begin());
    };
    apportion::Order shuffled;
    if (order) shuffled = [&](std::vector<int32_t>& places) { places = nb::cast<std::vector<int32_t>>((*order)(places)); };
    apportion::RoundResult result = apportion::run_rounds(jobs, options, ask, shuffled);
    return nb::make_tuple(array_of(std::move(result.start)), array_of(std::move(result.end)),
                          array_of(std::move(result.ran)), array_of(std::move(result.dropped)), result.rounds,
                          result.allocations, result.pieces);
}

auto assigned(Matrix seconds, Column<double> age) {
    const size_t count = age.size(), slots = seconds.shape(1);
    if (seconds.shape(0) != count || slots == 0) throw std::invalid_argument("Each job needs an age and times on slots");
    for (size_t at = 0; at < count * slots; ++at)
        if (!(std::isfinite(seconds.data()[at]) && seconds.data()[at] > 0))
            throw std::invalid_argument("Times must be positive and finite");
    for (size_t job = 0; job < count; ++job)
        if (!std::isfinite(age.data()[job])) throw std::invalid_argument("Ages must be finite");
    return array_of(apportion::least_completions(seconds.data(), age.data(), static_cast<int64_t>(count),
                                                 static_cast<int64_t>(slots)));
}

}  // namespace

void bind_schedule(nb::module_& module) {
    module.def("schedule_jobs", &scheduled, "in_order"_a, "arrival"_a, "width"_a, "truth"_a, "predicted"_a, "slots"_a,
               nb::kw_only(), "sigma"_a = nb::none(), "limit"_a = nb::none(), "only"_a = nb::none(),
               "program"_a = nb::none(), "key"_a = nb::none(), "age"_a = nb::none(), "backfill"_a = 0, "depth"_a = 100,
               "late"_a = false, "by_limit"_a = false, "requeue"_a = false, "learn"_a = false, "quantile_z"_a = 0.0,
               "tie"_a = 0.0, "repeat_sigma"_a = 0.0, "explore"_a = 0.0, "list"_a = false,
               "plan"_a = false, "programs"_a = 0,
               "class_sigma"_a = nb::none(), "class_deviation"_a = nb::none(), "trust"_a = 1.0,
               "Each job's system, start, end, predicted seconds and whether it was killed; then slot-seconds lost, "
               "trials made on purpose, the longest delay of a reserved head, and runs started again elsewhere.");
    module.def("run_rounds", &in_rounds, "arrival"_a, "width"_a, "steps"_a, "speed"_a, "slots"_a, "allocate"_a,
               "order"_a = nb::none(), nb::kw_only(), "seconds"_a = 360.0, "between_allocations"_a = 1920.0,
               "fill"_a = true, "drop"_a = false,
               "Each job's first start, end, seconds on each system (flat) and whether it was given up; then how many "
               "rounds, allocations and slices there were.");
    module.def("least_completions", &assigned, "seconds"_a, "age"_a,
               "Each job's place * slots + slot, places counted from the end of the slots' queues, such that the sum of "
               "completions is least.");
}
