// Much arithmetic per byte; some of it divergent.
kernel void nbody(global const float4 *bodies, global float4 *forces, int count) {
    int i = get_global_id(0);
    float4 here = bodies[i];
    float3 force = (float3)(0.0f);
    for (int k = 0; k < count; k++) {
        float3 away = bodies[k].xyz - here.xyz;
        float near = dot(away, away) + 0.01f;
        float inverse = 1.0f / sqrt(near);
        force += bodies[k].w * inverse * inverse * inverse * away;
    }
    forces[i] = (float4)(force, here.w);
}

kernel void mandelbrot(global int *steps, int width, int height, int most) {
    int x = get_global_id(0), y = get_global_id(1);
    // In whole numbers of 1/4096, so that every device counts the same steps.
    int a = 0, b = 0, n = 0, ca = x * 12288 / width - 8192, cb = y * 8192 / height - 4096;
    while (n < most && a * a / 4096 + b * b / 4096 < 16384) {
        int next = a * a / 4096 - b * b / 4096 + ca;
        b = 2 * a * b / 4096 + cb;
        a = next;
        n++;
        if (abs(a) > 16384 || abs(b) > 16384) break;
    }
    steps[y * width + x] = n;
}

kernel void black_scholes(global const float *price, global const float *strike, global const float *years,
                          global float *call, float rate, float volatility) {
    int i = get_global_id(0);
    float root = volatility * sqrt(years[i]);
    float first = (log(price[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i]) / root;
    float normal1 = 0.5f * erfc(-first * 0.70710678f), normal2 = 0.5f * erfc(-(first - root) * 0.70710678f);
    call[i] = price[i] * normal1 - strike[i] * exp(-rate * years[i]) * normal2;
}

kernel void collatz(global const uint *numbers, global int *lengths) {
    int i = get_global_id(0), length = 0;
    for (ulong n = numbers[i]; n > 1; length++) n = n & 1 ? 3 * n + 1 : n / 2;
    lengths[i] = length;
}
